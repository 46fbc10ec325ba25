"""The domain: what an execution, a step and an effect are, and which moves are legal. Standard library only."""
