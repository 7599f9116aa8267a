"""The served page in a real browser: Chromium, driven by Selenium. ``make test-browser`` runs it."""

import shutil
import threading
import time

import pytest

pytest.importorskip("selenium", reason="Selenium is not installed: pip install '.[browser]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install '.[serve]'")
import uvicorn
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from onebit import LogisticCompleter
from onebit.data.school import school
from onebit.data.store import Store
from onebit.serve import create_app

pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="there is no chromium, or no chromedriver, to open a page in",
)
# Whatever a policy refuses is written down before the page's own script runs.
WATCH = """
window.problems = [];
window.addEventListener("error", e => problems.push(String(e.message)));
window.addEventListener("unhandledrejection", e => problems.push(String(e.reason)));
document.addEventListener("securitypolicyviolation", e => problems.push(e.violatedDirective));
"""
SIZES = {"wide": (1300, 1000), "phone": (390, 844)}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    frame = school(seed=0).frame()
    model = LogisticCompleter(3, random_state=0, n_jobs=1)
    model.fit(frame[["student", "exercise"]], frame["solved"] == "yes", certify=0.1)
    store = tmp_path_factory.mktemp("served") / "answers.db"
    path = store.with_name("school.onebit")
    model.save(path)
    config = uvicorn.Config(create_app(path, store=store), port=0, log_level="warning", ws="none")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.02)
    port = running.servers[0].sockets[0].getsockname()[1]
    yield f"http://localhost:{port}/", store
    running.should_exit = True
    thread.join(20)


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    found.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    yield found
    found.quit()


class Page:
    """What a person sees and does."""

    def __init__(self, driver, address):
        self.driver = driver
        driver.get(address)
        self.wait(0)

    def wait(self, answers):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if self.driver.execute_script("return document.body.dataset.ready") == str(answers):
                return
            time.sleep(0.02)
        pytest.fail(f"not {answers} answers: {self.text('error')}")

    def text(self, name):
        return self.driver.find_element(By.ID, name).text

    def press(self, key):
        self.driver.find_element(By.TAG_NAME, "body").send_keys(key)

    def place(self):
        you = self.driver.find_element(By.CSS_SELECTOR, "#map .you")
        return float(you.get_attribute("cx")), float(you.get_attribute("cy"))

    def bars(self, name):
        return [one.text for one in self.driver.find_elements(By.CSS_SELECTOR, f"#{name} li")]

    def problems(self):
        logged = [one["message"] for one in self.driver.get_log("browser") if one["level"] != "DEBUG"]
        return self.driver.execute_script("return window.problems") + logged


@pytest.fixture(params=SIZES)
def page(request, driver, server):
    driver.get("about:blank")
    driver.set_window_size(*SIZES[request.param])
    driver.get_log("browser")
    found = Page(driver, server[0])
    driver.execute_script("sessionStorage.clear()")  # one tab serves all tests
    return found


def test_five_answers_move_the_bars_and_the_place_on_the_map(page):
    asked, shares, places = [], [page.text("share-words")], [page.place()]
    sure = page.bars("surest")
    for number in range(5):
        asked.append(page.text("question"))
        page.press("y")
        page.wait(number + 1)
        shares.append(page.text("share-words"))
        places.append(page.place())
    assert len(set(asked)) == 5
    assert len(set(shares)) == 6
    assert len(set(places)) == 6
    assert page.bars("surest") != sure
    assert page.text("count") == "(5)"
    assert "is expected to take away" in page.text("why")
    assert "at most" in page.text("certificate")
    assert page.problems() == []


def test_back_and_reload_keep_what_was_answered(page):
    words = [page.text("share-words")]
    for number in range(3):
        page.press("n" if number else "y")
        page.wait(number + 1)
        words.append(page.text("share-words"))
    page.driver.refresh()
    page.wait(3)
    assert page.text("share-words") == words[3]
    page.driver.back()
    page.wait(2)
    assert page.text("share-words") == words[2]
    page.driver.forward()
    page.wait(3)
    assert page.text("share-words") == words[3]
    page.press("u")
    page.wait(2)
    assert page.text("share-words") == words[2]
    assert page.problems() == []


def test_it_works_by_keyboard_alone(page):
    driver = page.driver
    for _ in range(10):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        if driver.switch_to.active_element.get_attribute("id") == "yes":
            break
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait(1)
    assert driver.switch_to.active_element.get_attribute("id") == "yes"
    question = page.text("question")
    page.press("s")
    end = time.monotonic() + 10
    while page.text("question") == question and time.monotonic() < end:
        time.sleep(0.02)
    assert page.text("question") != question
    assert page.problems() == []


def test_something_else_can_be_searched_and_answered_and_changed(page):
    search = page.driver.find_element(By.ID, "search")
    search.send_keys("geometry 1")
    end = time.monotonic() + 10
    while not page.driver.find_elements(By.CSS_SELECTOR, "#found button") and time.monotonic() < end:
        time.sleep(0.02)
    page.driver.find_element(By.CSS_SELECTOR, "#found button.yes").click()
    page.wait(1)
    assert "geometry 1" in page.text("given")
    before = page.text("share-words")
    page.driver.find_element(By.CSS_SELECTOR, "#given button").click()
    end = time.monotonic() + 10
    while page.text("share-words") == before and time.monotonic() < end:
        time.sleep(0.02)
    assert page.text("share-words") != before
    assert page.problems() == []


def test_answers_can_be_sent_to_be_learnt_from(page, server):
    page.press("y")
    page.wait(1)
    before = len(Store(server[1]).after().signs)
    page.driver.find_element(By.ID, "send").click()
    end = time.monotonic() + 10
    while not page.text("sent") and time.monotonic() < end:
        time.sleep(0.02)
    assert "Sent: 1 answer, under the name" in page.text("sent")
    assert len(Store(server[1]).after().signs) == before + 1
    page.press("n")
    page.wait(2)
    page.driver.find_element(By.ID, "send").click()
    end = time.monotonic() + 10
    while len(Store(server[1]).after().signs) < before + 2 and time.monotonic() < end:
        time.sleep(0.02)
    stored = Store(server[1]).after()
    assert len(stored.signs) == before + 2  # the second answer alone
    assert stored.rows[-1] == stored.rows[-2]


def test_nothing_overflows_and_dark_is_dark(page):
    driver = page.driver
    wide = driver.execute_script(
        "const r = document.documentElement; return r.scrollWidth - r.clientWidth"
    )
    assert wide == 0
    colours = []
    for scheme in ("light", "dark"):
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        colours.append(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(map(int, one[4:-1].split(","))) for one in colours)
    assert light > 600
    assert dark < 200


def test_a_server_that_is_gone_is_said(page):
    page.driver.execute_script("window.fetch = () => Promise.reject(new Error('no network'))")
    page.press("y")
    end = time.monotonic() + 10
    while not page.text("error") and time.monotonic() < end:
        time.sleep(0.02)
    assert "no network" in page.text("error")
