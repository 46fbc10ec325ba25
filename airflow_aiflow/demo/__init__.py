"""The document review of `aiflow demo`: what its DAG is made of, and the run that kills it and counts."""
