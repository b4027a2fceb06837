"""The private methods: each a contribution, an update and a released posterior."""
