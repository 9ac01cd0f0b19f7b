"""What Airflow lists among its providers. It reads this before its own modules can be imported, so nothing is imported here."""


def provider_info() -> dict[str, str]:
    """Name and description of the package."""
    return {"package-name": "dpdist-airflow", "name": "dpdist", "description": "Publish differentially private releases."}
