"""The decorators that DAG authors write: faces of the flow."""
