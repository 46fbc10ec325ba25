"""Model calls: what is asked, what came back, what it cost. The speaking library is imported at the first call."""
