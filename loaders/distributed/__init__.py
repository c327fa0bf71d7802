"""The dynamic side of sources on Spark: parsed in parts, labelled by fact, written in order."""
