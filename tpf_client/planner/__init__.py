"""The planner: basic graph patterns over fragments, with as few requests as possible."""
