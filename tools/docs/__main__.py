"""Write the generated documents and the blocking twin.

With `--check`, fail if one is stale or a required acceptance case has no test.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools import blocking
from tools.docs import acceptance, errors, figures, metrics, picture, states

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Return 0, or 1 after one line per thing that is wrong."""
    checking = "--check" in sys.argv[1:]
    wrong = acceptance.problems(ROOT) if checking else []
    documents = {
        ROOT / "docs" / "errors.md": errors.render(),
        ROOT / "docs" / "states.md": states.render(),
        ROOT / "docs" / "metrics.md": metrics.render(),
        ROOT / "docs" / picture.PATH: picture.render(),
        ROOT / "docs" / "acceptance.md": acceptance.render(ROOT),
        blocking.PATH: blocking.render(),
        **figures.documents(ROOT),
    }
    for path, text in documents.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if checking:
            wrong.append(f"{path.relative_to(ROOT)} is stale: run `make docs`")
        else:
            path.write_text(text, encoding="utf-8")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
