"""REST: the paths of Pravega's controller, and those of an operator beside them. Source: docs/design/rest.md."""
