"""What this process may use of its machine, and how it writes files: cores, memory, threads, durable and private files."""
