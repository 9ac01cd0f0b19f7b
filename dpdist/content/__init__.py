"""What a release publishes, before it is shown: answers, certificate fields, the measurement file, suppression and intervals."""
