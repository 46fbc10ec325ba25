"""One attempt at work: it takes over, replays what is recorded, runs what is not, and records it."""
