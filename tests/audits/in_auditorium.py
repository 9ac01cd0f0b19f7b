"""Runs in the environment of dp_auditorium, which has no dpdist: ``python in_auditorium.py SAMPLES.npz CLAIMS.json``.

Google's runner gets the samples of every pair as those of a mechanism on two constant data sets, and its tester of histograms
(Gilbert & McMillan 2018) says whether they contradict (epsilon, delta). Prints the names of those that do, as JSON.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from dp_auditorium.configs import privacy_property, privacy_test_runner_config, property_tester_config
from dp_auditorium.generators import ConstantDatasetGenerator
from dp_auditorium.privacy_test_runner import PrivacyTestRunner
from dp_auditorium.testers import HistogramTester


def violated(one: np.ndarray, other: np.ndarray, claim: dict[str, float]) -> bool:
    """Whether the tool finds samples of two neighbours contradicting a claim."""
    promise = privacy_property.ApproximateDp(epsilon=claim["epsilon"], delta=claim["delta"])
    tester = HistogramTester(
        property_tester_config.HistogramPropertyTesterConfig(
            test_discrete_mechanism=False,
            histogram_size=2,
            min_value=claim["epsilon"] - 50,
            max_value=claim["epsilon"] + 50,
            approximate_dp=promise,
        )
    )
    run = privacy_test_runner_config.PrivacyTestRunnerConfig(
        property_tester=privacy_test_runner_config.PropertyTester.HISTOGRAM_TESTER,
        max_num_trials=1,
        failure_probability=claim["alarm"],
        num_samples=one.size,
        post_processing=privacy_test_runner_config.PostProcessing.NONE,
    )
    runner = PrivacyTestRunner(run, ConstantDatasetGenerator((one, other)), tester)
    found = runner.test_privacy(lambda samples, number: samples[:number], "dpdist")
    return found.found_privacy_violation is not None


def main() -> None:
    with open(sys.argv[2], encoding="utf-8") as file:
        claims = json.load(file)
    with np.load(sys.argv[1]) as samples:
        names = [name for name, claim in claims.items() if violated(samples[f"{name}/0"], samples[f"{name}/1"], claim)]
    print(json.dumps(names))


main()
