-- What comes is the mark of a run that has news.
listen aiflow_event
