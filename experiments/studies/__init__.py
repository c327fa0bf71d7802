"""The studies: each is a question, its measurements and its report."""
