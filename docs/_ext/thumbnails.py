"""Small pictures of the notebooks for their gallery; run it to draw them anew (minutes)."""

import base64
import io
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "pictures/notebooks"
SIZE = (480, 240)


def main() -> None:
    """Run every notebook, and keep the last picture that it draws."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in sorted((DOCS.parent / "notebooks").glob("*.ipynb")):
        shrunk(last_picture(path)).save(FOLDER / f"{path.stem}.png", optimize=True)


def last_picture(path: Path) -> Image.Image:
    """Run a notebook and return the last picture among its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    found = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    return Image.open(io.BytesIO(base64.b64decode(found[-1]))).convert("RGB")


def shrunk(picture: Image.Image) -> Image.Image:
    """Fit a picture onto a white card."""
    picture.thumbnail(SIZE)
    card = Image.new("RGB", SIZE, "white")
    card.paste(picture, ((SIZE[0] - picture.width) // 2, (SIZE[1] - picture.height) // 2))
    return card.quantize(64)


if __name__ == "__main__":
    main()
