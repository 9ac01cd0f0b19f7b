"""``dpdist studio``: a page of this machine alone, on which a release is planned before anything is spent."""
