"""The flows, deployments and work pools that Prefect runs."""
