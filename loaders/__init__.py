"""Loaders: real data into stores and servers, through PySpark."""
