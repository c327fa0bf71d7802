"""The service: registration, results, other servers, HTTP, and the command for files."""
