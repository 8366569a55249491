"""The page of `serve --ui` and `eventproc ui`: files that a browser loads, and how they are served."""
