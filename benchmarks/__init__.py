"""The demo, and measurements that the documentation quotes."""
