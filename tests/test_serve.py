"""A served model: what it answers, what it refuses, and that it keeps what it acknowledged."""

import json
import os
import socket
import sqlite3
import threading
import time
from http.client import HTTPConnection

import numpy as np
import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

import onebit
from onebit import GibbsCompleter, LogisticCompleter, simulate
from onebit.data.school import school
from onebit.data.store import Conflict, FileError, Store
from onebit.serve import Settings, create_app, replies
from onebit.serve.held import Held
from onebit.serve.openapi import PATHS
from onebit.serve.requests import Refused, identifier, shown, whole


@pytest.fixture(scope="module")
def model():
    frame = school(seed=0).frame()
    frame = frame[frame["student"].str.startswith(("A", "B", "C", "D"))]
    pairs = frame[["student", "exercise"]]
    return LogisticCompleter(2, random_state=0, n_jobs=1).fit(
        pairs, frame["solved"] == "yes", certify=0.2
    )


@pytest.fixture(scope="module")
def numbered():
    world = simulate.world("B1", rank=1, shape=(30, 20), density=0.6, seed=0)
    return LogisticCompleter(2, random_state=0, n_jobs=1).fit(world.pairs, world.answers)


def client_of(model, **more):
    return TestClient(
        create_app(model, **more), base_url="http://localhost", raise_server_exceptions=False
    )


@pytest.fixture(scope="module")
def client(model):
    return client_of(model)


def test_the_card_says_what_the_model_is_and_what_is_certified(client, model):
    card = client.get("/api/model").json()
    assert (card["rows"], card["columns"]) == (len(model.rows_), len(model.columns_))
    assert (card["row_name"], card["column_name"]) == ("student", "exercise")
    assert card["certificate"]["sentence"] == model.certify(0.05).sentence()
    assert card["cannot_ask"] is None
    assert not card["stores_answers"]


def test_predictions_are_the_models(client, model):
    pairs = [[str(model.rows_.labels[3]), str(model.columns_.labels[5])], ["nobody", "fractions 01"]]
    found = client.post("/api/predict", json={"pairs": pairs}).json()["predictions"]
    assert np.allclose(
        [line["probability"] for line in found], model.predict_proba(pairs)[:, 1], atol=1e-4
    )
    assert [line["known"] for line in found] == [True, False]
    assert client.post("/api/predict", json={"pairs": []}).json() == {"predictions": []}


def test_a_new_row_is_what_an_interview_makes_of_it(client, model):
    answers = [["fractions 01", True], ["geometry 02", False]]
    body = {"answers": answers, "n": 3, "columns": ["graphs 01"]}
    found = client.post("/api/fold-in", json=body).json()
    assert found["questions"] == []
    both = client.post("/api/fold-in", json={**body, "questions": 2}).json()
    alone = client.post("/api/next", json={"answers": answers, "n": 2}).json()
    assert both["questions"] == alone["questions"]
    asked = model.interview(dict(answers))
    assert found["share"]["mean"] == pytest.approx(asked.share, abs=1e-4)
    assert found["share"]["low"] == pytest.approx(asked.low, abs=1e-4)
    assert "population like the" in found["share"]["speaks_of"]
    line = found["predictions"][0]
    assert line["probability"] == pytest.approx(asked.probability("graphs 01")[0], abs=1e-4)
    assert line["low"] < line["probability"] < line["high"]
    listed = [one["column"] for one in found["surest"] + found["least_sure"]]
    assert len(listed) == 6
    assert "fractions 01" not in listed
    sure = [abs(one["probability"] - 0.5) for one in found["surest"]]
    unsure = [abs(one["probability"] - 0.5) for one in found["least_sure"]]
    assert sure == sorted(sure, reverse=True)
    assert max(unsure) <= min(sure)
    again = client.post("/api/fold-in", json={"answers": dict(answers), "n": 3}).json()
    assert again["share"] == found["share"]


def test_answers_narrow_what_is_not_known(client, model):
    few = client.post("/api/fold-in", json={"answers": {}}).json()
    columns = [str(one) for one in model.columns_.labels[:60]]
    answers = {one: k % 4 > 0 for k, one in enumerate(columns)}
    many = client.post("/api/fold-in", json={"answers": answers}).json()
    assert many["share"]["high"] - many["share"]["low"] < few["share"]["high"] - few["share"]["low"]
    assert np.linalg.det(many["place"]["covariance"]) < 0.3 * np.linalg.det(few["place"]["covariance"])
    more = client.post("/api/fold-in", json={"answers": dict.fromkeys(columns, 1)}).json()
    assert more["place"]["at"][0] > many["place"]["at"][0]  # to the right there is more yes


def test_the_next_question_is_the_most_telling_one(client, model):
    asked = model.interview({"fractions 01": True})
    found = client.post("/api/next", json={"answers": {"fractions 01": True}, "n": 2}).json()
    assert [one["column"] for one in found["questions"]] == [one.column for one in asked.questions(2)]
    assert "uncertain about the share of yes" in found["questions"][0]["why"]
    among = ["graphs 01", "graphs 02"]
    goal = client.post("/api/next", json={"goal": ["geometry 02"], "among": among}).json()
    assert goal["questions"][0]["column"] in among
    assert "about the answers that are to be learnt" in goal["questions"][0]["why"]
    every = {str(one): 1 for one in model.columns_.labels}
    done = client.post("/api/next", json={"answers": every}).json()
    assert done["questions"] == []
    assert done["finished"] == "nothing is left to ask"
    part = client.post("/api/next", json={"answers": {"fractions 01": 1, "nix": 1}}).json()
    assert (part["skipped"], part["unknown"]) == (1, ["nix"])


def test_recommendations_leave_out_what_was_answered(client, model):
    row = str(model.rows_.labels[0])
    found = client.post("/api/recommend", json={"row": row, "n": 3}).json()
    assert [one["column"] for one in found["columns"]] == list(model.recommend([row], 3)["exercise"])
    best = client.post("/api/recommend", json={"answers": {}, "n": 1}).json()["columns"][0]["column"]
    other = client.post("/api/recommend", json={"answers": {best: 1}, "n": 1}).json()["columns"][0]
    assert other["column"] != best


def test_rows_have_error_bars(client, model):
    row = str(model.rows_.labels[0])
    line = client.post("/api/rows", json={"rows": [row]}).json()["rows"][0]
    assert line["low"] <= line["share"] <= line["high"]
    view = model.kept_answers().everything.by_row
    assert line["answers"] == len(np.unique(view.index[: view.start[1]]))
    ids = client.post("/api/rows", json={"search": "ada"}).json()
    assert ids["found"] == len(ids["ids"]) > 0
    assert all("Ada" in one for one in ids["ids"])
    assert client.get("/api/columns?search=GRAPHS&n=2").json()["ids"] == ["graphs 01", "graphs 02"]


def test_the_map_shows_rows_and_what_its_ends_mean(client, model):
    found = client.get("/api/map").json()
    assert len(found["at"]) == found["of"] == len(model.rows_)
    points, effects = np.array(found["at"]), model.row_effects_.loc[found["ids"]].to_numpy()
    assert np.corrcoef(points[:, 0], effects)[0, 1] > 0.9
    # Distances on the map are root-mean-square differences of scores, as far as two axes hold them.
    scores = model.complete("score").loc[found["ids"]].to_numpy()
    far = np.sqrt(((scores[0] - scores[1]) ** 2).mean())
    assert np.linalg.norm(points[0] - points[1]) == pytest.approx(far, rel=0.05)


REFUSED = [
    ("/api/predict", {"pairs": [["a"]]}, 422, "list of pairs"),
    ("/api/predict", {"pairs": [["a", None]]}, 422, "an id is text or a number, not null"),
    ("/api/predict", {"pairs": [["a", True]]}, 422, "not true or false"),
    ("/api/predict", {"pairs": [["a", 1]]}, 422, "column ids of this model are text, not 1"),
    ("/api/predict", {"pairs": [["a", "x" * 2000]]}, 422, "at most 1000 characters"),
    ("/api/predict", {"paris": []}, 422, "there is no field 'paris'; there are pairs"),
    ("/api/predict", {}, 422, "pairs must be a list, not null"),
    ("/api/fold-in", {"answers": {"fractions 01": "maybe"}}, 422, '1 or 0; not "maybe"'),
    ("/api/fold-in", {"answers": {"fractions 01": 7}}, 422, "an answer is true or false"),
    ("/api/fold-in", {"level": 2}, 422, "level must be between 0 and 1, not 2"),
    ("/api/fold-in", {"n": 1.5}, 422, "n must be whole, from 0 to 100, not 1.5"),
    ("/api/fold-in", {"columns": ["nix"]}, 422, "does not know the column 'nix'"),
    ("/api/next", {"goal": "all"}, 422, 'goal is "mean", "row" or a list'),
    ("/api/next", {"among": ["nix"]}, 422, "'nix'"),
    ("/api/next", {"among": []}, 422, "names no column"),
    ("/api/recommend", {}, 422, "name a row that the model knows"),
    ("/api/recommend", {"row": "nobody"}, 404, "does not know the row 'nobody'"),
    ("/api/rows", {"rows": ["nobody"]}, 404, "'nobody'"),
    ("/api/answers", {"key": "k", "row": "r", "answers": {"fractions 01": 1}}, 404, "without --store"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "words"), REFUSED)
def test_a_wrong_request_gets_one_clear_sentence(client, path, body, status, words):
    reply = client.post(path, json=body)
    assert reply.status_code == status
    assert words in reply.json()["error"]
    assert "Traceback" not in reply.text


def test_what_is_no_json_is_refused(client):
    head = {"content-type": "application/json"}
    deep = "[" * 100_000
    for body in ("{", "[]", '"a"', "NaN", '{"n": NaN}', deep, '{"n": 1' + "0" * 5000 + "}", b"\xff"):
        reply = client.post("/api/next", content=body, headers=head)
        assert reply.status_code in (400, 422), body[:20]
        assert "error" in reply.json()
    assert client.post("/api/next", content="{}").status_code == 415
    assert client.get("/api/next").status_code == 405
    assert "openapi" in client.get("/api/nothing").json()["error"]
    assert client.get("/api/columns?n=" + "9" * 5000).status_code == 422
    lone = client.post("/api/predict", content=b'{"pairs": [["\\ud800", "a"]]}', headers=head)
    assert lone.status_code == 422


def test_what_is_nested_too_deeply_to_be_shown_is_refused_like_the_rest():
    value = []
    for _ in range(5000):
        value = [value]
    assert shown(value) == "what is nested so deeply"
    with pytest.raises(Refused, match="n must be whole, from 1 to 10, not what is nested"):
        whole(1, 10, 5)(value, "n")


@pytest.mark.parametrize("nobody", ["", " ", "a\0b"])
def test_an_empty_id_is_none(nobody):
    with pytest.raises(Refused, match="an id is not empty"):
        identifier(nobody, "row")


def test_numbers_are_ids_where_the_model_has_numbers(numbered):
    client = client_of(numbered)
    assert client.get("/api/model").json()["row_ids"] == "number"
    found = client.post("/api/predict", json={"pairs": [[3, 4], [3, 10**18]]})
    assert [line["known"] for line in found.json()["predictions"]] == [True, False]
    for odd in (10**30, 10**4000, 1.5, "a"):
        assert client.post("/api/predict", json={"pairs": [[3, odd]]}).status_code == 422
    assert client.post("/api/next", json={"answers": [[4, 1]]}).json()["questions"][0]["column"] != 4


def test_words_are_answers_where_the_model_has_words(tmp_path):
    path = tmp_path / "poll.csv"
    lines = [f"p{row},s{column},{'agree' if (row * column) % 3 else 'disagree'}"
             for row in range(12) for column in range(9)]  # fmt: skip
    path.write_text("person,statement,answer\n" + "\n".join(lines))
    observations = onebit.tables.read_answers(path, yes=["agree"], no=["disagree"])
    client = client_of(LogisticCompleter(1, random_state=0).fit(observations))
    yes = client.post("/api/fold-in", json={"answers": {"s1": "agree"}}).json()["share"]["mean"]
    no = client.post("/api/fold-in", json={"answers": {"s1": "disagree"}}).json()["share"]["mean"]
    assert yes > no
    wrong = client.post("/api/fold-in", json={"answers": {"s1": "Agree!"}})
    assert "'agree' or 'disagree'" in wrong.json()["error"]


def test_a_model_without_log_odds_predicts_and_says_why_it_does_not_ask(numbered, caplog):
    world = simulate.world("A1", rank=1, shape=(20, 15), density=0.6, seed=0)
    client = client_of(GibbsCompleter(1, random_state=0).fit(world.pairs, world.answers))
    why = client.get("/api/model").json()["cannot_ask"]
    assert "log-odds, which GibbsCompleter does not have" in why
    assert f"this model predicts and recommends, and does not ask: {why}" in caplog.text
    assert client.post("/api/predict", json={"pairs": [[0, 0]]}).status_code == 200
    for path in ("/api/next", "/api/fold-in"):
        assert client.post(path, json={"answers": []}).status_code == 422


def test_only_known_hosts_and_origins_are_answered(model):
    client = client_of(model)
    assert client.get("/api/model", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/", headers={"host": "evil.example:80"}).status_code == 421
    for host in ("[::1].evil.example", "[::1", "localhost.evil.example", "evil.example:localhost"):
        assert client.get("/api/model", headers={"host": host}).status_code == 421
    for origin in ("null", "x://localhost", "://localhost"):
        assert client.get("/api/model", headers={"origin": origin}).status_code == 403
    for host in ("localhost:8571", "127.0.0.1", "[::1]:9", "LOCALHOST"):
        assert client.get("/api/model", headers={"host": host}).status_code == 200
    assert client.get("/api/model", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/model", headers={"origin": "http://localhost"}).status_code == 200
    site = "https://friend.example"
    open_ = client_of(model, settings=Settings(origins=(site,)))
    reply = open_.get("/api/model", headers={"origin": site})
    assert reply.headers["access-control-allow-origin"] == site
    assert open_.options("/api/next", headers={"origin": site}).status_code == 204
    assert open_.options("/api/next", headers={"origin": "http://evil.example"}).status_code == 403
    assert (
        "access-control-allow-origin" not in client.options("/api/next", headers={"origin": site}).headers
    )


def test_a_token_guards_everything_but_the_empty_page(model):
    token = "a-token-of-some-length"
    client = client_of(model, settings=Settings(token=token))
    assert client.get("/api/model").status_code == 401
    assert client.get("/api/model", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/api/metrics").status_code == 401
    assert client.get("/api/model", headers={"authorization": f"Bearer {token}"}).status_code == 200
    for path in ("/", "/page.js", "/page.css", "/api/health"):
        assert client.get(path).status_code == 200
    with pytest.raises(ValueError, match="at least 16 characters"):
        Settings(token="short")


def test_every_reply_has_the_headers_that_protect_a_browser(client):
    for reply in (client.get("/"), client.get("/api/nothing"), client.get("/api/model")):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "unsafe" not in reply.headers["content-security-policy"]


def test_too_much_is_refused(model):
    client = client_of(model, settings=Settings(max_body=2000, max_pairs=3, max_answers=2, max_rows=1))
    big = client.post("/api/predict", json={"pairs": [["a", "b" * 900]] * 5})
    assert (big.status_code, big.json()["error"]) == (413, "a request has at most 2,000 bytes")
    many = client.post("/api/predict", json={"pairs": [["a", "b"]] * 4})
    assert (many.status_code, many.json()["error"]) == (
        413, "pairs has 4 entries; at most 3 go into one request"
    )  # fmt: skip
    assert client.post("/api/next", json={"answers": {"a": 1, "b": 1, "c": 1}}).status_code == 413
    # A body that does not say how long it is.
    parts = (b" " * 1000 for _ in range(5))
    head = {"content-type": "application/json"}
    assert client.post("/api/next", content=parts, headers=head).status_code == 413


def test_requests_beyond_the_limit_are_asked_to_come_back(model, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        go_on.wait(10)
        return {}

    monkeypatch.setattr(replies, "map_points", slow)
    with client_of(model, settings=Settings(max_requests=1)) as client:
        waiting = threading.Thread(target=lambda: client.get("/api/map"))
        waiting.start()
        assert begun.wait(10)
        reply = client.get("/api/model")
        go_on.set()
        waiting.join()
        assert reply.status_code == 503
        assert reply.headers["retry-after"] == "1"
        assert client.get("/api/model").status_code == 200


def test_what_takes_too_long_is_given_up(model, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(replies, "map_points", lambda *_: go_on.wait(10) and {})
    with client_of(model, settings=Settings(timeout=0.1)) as client:
        reply = client.get("/api/map")
        go_on.set()
    assert reply.status_code == 503
    assert "more than 0.1 seconds" in reply.json()["error"]


def test_work_that_was_given_up_still_takes_its_place(model, monkeypatch):
    go_on, running = threading.Event(), []

    def slow(*_):
        running.append(1)
        go_on.wait(10)
        return {}

    monkeypatch.setattr(replies, "map_points", slow)
    app = create_app(model, settings=Settings(timeout=0.1))
    with TestClient(app, base_url="http://localhost") as client:
        for _ in range(6):
            assert client.get("/api/map").status_code == 503
        assert len(running) <= max(2, os.cpu_count())
        go_on.set()
        for _ in range(100):
            if client.get("/api/model").status_code == 200:
                break
        assert client.get("/api/model").status_code == 200


def test_a_fault_inside_tells_a_client_nothing(model, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a secret path")

    monkeypatch.setattr(replies, "map_points", fail)
    reply = client_of(model).get("/api/map")
    assert reply.status_code == 500
    assert "secret" not in reply.text
    assert "a secret path" in caplog.text


def test_metrics_count_what_was_asked(model):
    client = client_of(model)
    client.get("/api/model")
    client.post("/api/predict", json={"pairs": "x"})
    client.get("/api/who-knows")
    text = client.get("/api/metrics").text
    assert 'onebit_requests_total{path="/api/model",status="200"} 1' in text
    assert 'onebit_requests_total{path="/api/predict",status="422"} 1' in text
    assert 'onebit_requests_total{path="other",status="404"} 1' in text
    assert 'onebit_request_seconds_count{path="/api/model"} 1' in text
    assert client.get("/api/health").json() == {"status": "ok"}


def test_the_description_names_every_path(client, model):
    found = client.get("/api/openapi.json").json()
    assert set(found["paths"]) == set(PATHS)
    routes = {route.path for route in create_app(model).app.routes}
    assert {path for path in routes if path.startswith("/api/")} == {*PATHS, "/api/openapi.json"}
    for path, methods in found["paths"].items():
        for method in methods:
            reply = client.get(path) if method == "get" else client.post(path, json={})
            assert reply.status_code not in (404, 405, 500) or path == "/api/answers"
    assert json.dumps(found)


def test_the_page_is_small_and_brings_everything_along(client):
    size = 0
    for path in ("/", "/page.js", "/page.css", "/icon.svg"):
        text = client.get(path).text
        size += len(text)
        assert "http://" not in text.replace("http://www.w3.org/", "")
        assert "https://" not in text
    assert size < 150_000


def test_a_new_file_takes_over_and_a_bad_one_does_not(numbered, tmp_path):
    path = tmp_path / "model.onebit"
    numbered.save(path)
    held = Held(path)
    first = held.model
    assert not held.changed()
    numbered.save(path, answers=False)
    assert held.changed()
    assert held.reload()
    assert held.model is not first
    assert not held.model.answers_kept
    path.write_bytes(b"no model")
    second = held.model
    assert held.changed()
    assert not held.reload()
    assert held.model is second
    path.unlink()
    assert not held.changed()


def test_a_model_that_is_replaced_is_taken_up_while_requests_go_on(numbered, tmp_path, monkeypatch):
    monkeypatch.setattr("onebit.serve.app.WATCH", 0.05)
    path = tmp_path / "model.onebit"
    numbered.save(path)
    other = LogisticCompleter(0, random_state=0).fit([(0, 0), (1, 0), (0, 1)], [1, 0, 1])
    with client_of(path, watch=True) as client:
        seen = [client.get("/api/model").json()["rows"]]
        other.save(path)
        for _ in range(400):
            reply = client.get("/api/model")
            assert reply.status_code == 200
            seen.append(reply.json()["rows"])
            if seen[-1] == 2:
                break
        assert seen[0] == 30
        assert seen[-1] == 2


def test_answers_are_stored_once_and_taken_up_by_an_update(model, tmp_path):
    store = tmp_path / "answers.db"
    client = client_of(model, store=store)
    assert client.get("/api/model").json()["stores_answers"]
    body = {"key": "k1", "row": "Zoe", "answers": [["fractions 01", True], ["geometry 02", False]]}
    assert client.post("/api/answers", json=body).json() == {"stored": 2, "new": True}
    assert client.post("/api/answers", json=body).json() == {"stored": 2, "new": False}
    other = client.post("/api/answers", json={**body, "answers": [["fractions 01", False]]})
    assert other.status_code == 409
    assert "was used before" in other.json()["error"]
    wrong = client.post("/api/answers", json={**body, "key": "k2", "answers": [["nix", True]]})
    assert wrong.status_code == 422
    assert client.post("/api/answers", json={**body, "key": None}).status_code == 422
    found = Store(store, create=False).after()
    assert (found.rows, found.columns, found.signs) == (
        ["Zoe"] * 2,
        ["fractions 01", "geometry 02"],
        [1, -1],
    )
    assert Store(store).after(found.last, found.mark).signs == []
    assert "onebit_answers_stored_total 2" in client.get("/api/metrics").text


def test_a_store_is_for_its_owner_and_no_other_file(tmp_path):
    path = tmp_path / "answers.db"
    store = Store(path)
    assert path.stat().st_mode & 0o077 == 0
    store.add("k", 7, [(3, 1)])
    with pytest.raises(Conflict):
        store.add("k", 7, [(3, -1)])
    assert Store(path).id == store.id
    assert store.after().rows == [7]  # numbers stay numbers
    foreign = sqlite3.connect(tmp_path / "other.db")
    foreign.execute("CREATE TABLE mine (x)")
    foreign.commit()
    with pytest.raises(FileError, match="a database of another program"):
        Store(tmp_path / "other.db")
    (tmp_path / "text.db").write_text("certainly not a database, but long enough to be one" * 20)
    with pytest.raises(FileError, match="is not a file of answers"):
        Store(tmp_path / "text.db")
    with pytest.raises(FileNotFoundError):
        Store(tmp_path / "missing.db", create=False)
    with pytest.raises(FileError, match="no plain file"):
        Store(tmp_path)
    with pytest.raises(FileError, match="an older copy"):
        store.after(17)
    for row, sign in (("[1]", 1), ("not json", 1), ("null", 1), ("[" * 100_000, 1)):
        store._connection.execute(
            'INSERT INTO answers (row, "column", answer) VALUES (?, ?, ?)', (row, "1", sign)
        )
        with pytest.raises(FileError, match="answer"):
            store.after(1)
        store._connection.execute("DELETE FROM answers WHERE id > 1")


def test_a_store_that_another_process_holds_keeps_nobody_from_asking(model, tmp_path, monkeypatch):
    monkeypatch.setattr("onebit.data.store._PATIENCE", 0.2)
    path = tmp_path / "answers.db"
    client = client_of(model, store=path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    body = {"key": "k", "row": "Zoe", "answers": [["fractions 01", True]]}
    reply = client.post("/api/answers", json=body)
    assert reply.status_code == 503
    assert "send them again" in reply.json()["error"]
    other.execute("ROLLBACK")
    other.close()
    assert client.post("/api/answers", json=body).json() == {"stored": 1, "new": True}


def test_a_connection_that_sends_no_request_is_given_up(model, monkeypatch):
    uvicorn = pytest.importorskip("uvicorn")
    from onebit.serve import protocol

    monkeypatch.setattr(protocol, "PATIENCE", 0.2)
    monkeypatch.setattr(protocol, "EVERY", 0.05)
    config = uvicorn.Config(
        create_app(model), port=0, log_level="critical", http=protocol.HastyProtocol, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        for sent in (b"", b"G", b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
                slow.sendall(sent)
                assert slow.recv(100) == b""
        good = HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(3):  # one connection, several requests
            good.request("GET", "/api/health", headers={"Host": "localhost"})
            assert good.getresponse().read() == b'{"status":"ok"}'
            time.sleep(0.1)
        good.close()
    finally:
        server.should_exit = True
        thread.join(10)


def test_the_app_can_be_mounted_in_another(model):
    fastapi = pytest.importorskip("fastapi")
    app = fastapi.FastAPI()
    app.mount(
        "/onebit", create_app(model, settings=Settings(hosts=("*",), token="a-token-of-some-length"))
    )
    client = TestClient(app)
    assert client.get("/onebit/").status_code == 200
    assert client.get("/onebit/api/model").status_code == 401
    head = {"authorization": "Bearer a-token-of-some-length"}
    assert client.get("/onebit/api/model", headers=head).json()["columns"] == len(model.columns_)
