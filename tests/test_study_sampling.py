"""The variational posteriors against their sampled truth."""

import json

import numpy as np
import pytest

from onebit.study.runner import StudyError
from onebit.study.sampling import (
    POSTERIORS,
    RESULTS,
    SamplingPlan,
    SamplingTask,
    run_sampling,
    write_sampling_page,
)

PLAN = SamplingPlan(seeds=1, movielens_splits=0, burn_in=20, draws=40, worlds=("A2",), ranks=(3,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    run_sampling(PLAN, folder, n_jobs=1)
    return folder


def test_every_posterior_is_held_against_its_own_truth(folder):
    results = run_sampling(PLAN, folder, n_jobs=1)
    assert [task.posterior for task in results] == list(POSTERIORS)
    for result in results.values():
        assert 0 < result["distance"] < 0.5
        assert 0 < result["share_inside"] < 0.9  # the approximation is narrower than the truth
        assert 0 < result["spread"] < 1
        assert result["error_exact"] < 0.2
        assert np.isfinite(result["log_loss_exact"])
    paper, hinge, _ = results.values()
    assert paper["spread"] < hinge["spread"]  # independent coordinates are narrower still


def test_a_stopped_study_goes_on_and_a_foreign_file_is_left_alone(folder, tmp_path):
    path = tmp_path / RESULTS
    lines = (folder / RESULTS).read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:20])  # killed while it wrote the last task
    seen = []
    run_sampling(PLAN, tmp_path, n_jobs=1, tell=lambda done, total, task: seen.append((done, total)))
    assert seen == [(3, 3)]
    again, first = (
        {json.dumps(entry["task"]): entry["result"]["distance"] for entry in entries}
        for entries in (
            map(json.loads, text.read_text().splitlines()[1:]) for text in (path, folder / RESULTS)
        )
    )
    assert again == first
    path.write_text("something else\n")
    with pytest.raises(StudyError, match="does not hold results of this study"):
        run_sampling(PLAN, tmp_path, n_jobs=1)


def test_the_page_shows_every_posterior_and_world(folder, tmp_path):
    results = run_sampling(PLAN, folder, n_jobs=1)
    text = write_sampling_page(PLAN, results, tmp_path, "onebit study --sampling").read_text()
    for posterior in POSTERIORS:
        assert f"## The {posterior} posterior" in text
    assert text.count("| A2 rank 3 |") == 3
    assert "`onebit study --sampling`" in text


def test_a_quick_plan_is_small():
    assert len(SamplingPlan.quick().tasks()) == 36
    assert SamplingTask("A1", POSTERIORS[0], 0, 3) in SamplingPlan().tasks()
