"""The chat page in real headless Chromium, against a real router and the simulated engine."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.fakes.local_cluster import eventually
from tests.fakes.redis_server import free_port

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

KEY = "sk-llmgw-test"  # pragma: allowlist secret


def start_engine(folder: Path, name: str, model: str, *more: str):
    out = (folder / f"{name}.out").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "agent.sim_engine", "--host", "127.0.0.1", "--port", "0"),
            *("--served-model-name", model, "--decode-rate", "40", *more),
        ],
        stdout=out,
        stderr=subprocess.STDOUT,
    )
    out.close()
    line = eventually(
        f"{name} listens", lambda: (folder / f"{name}.out").read_text().strip().splitlines()
    )[0]
    return process, json.loads(line)["listening"]


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    """The router's address: a model that counts as real, and a simulated one whose name sorts first."""
    folder = tmp_path_factory.mktemp("chat")
    processes = []
    try:
        real, real_at = start_engine(folder, "real", "zulu")
        processes.append(real)
        fake, fake_at = start_engine(folder, "fake", "alpha")
        processes.append(fake)
        static = {
            "models": [
                {
                    "name": "zulu",
                    "description": "A model with <b>words</b> about it.",
                    "context_length": 4096,
                    "endpoints": [{"url": f"http://{real_at}"}],
                },
                {"name": "alpha", "simulated": True, "endpoints": [{"url": f"http://{fake_at}"}]},
                {"name": "zz-nobody", "endpoints": [{"url": f"http://127.0.0.1:{free_port()}"}]},
            ],
            "keys": [{"name": "test", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}],
        }
        written = folder / "router.yaml"
        written.write_bytes(msgspec.yaml.encode(static))
        ready = folder / "router.json"
        log = (folder / "router.log").open("w")
        processes.append(
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "router", "--config", str(written)),
                    *("--bind", "127.0.0.1:0", "--metrics-bind", "127.0.0.1:0", "--workers", "1"),
                    *("--run", str(folder / "run"), "--grace", "0", "--port-file", str(ready)),
                ],
                stdout=log,
                stderr=log,
            )
        )
        log.close()
        router = processes[-1]

        def is_ready() -> bool:
            assert router.poll() is None, (folder / "router.log").read_text()
            return ready.exists()

        eventually("the router is ready", is_ready)
        yield f"http://127.0.0.1:{json.loads(ready.read_text())['port']}"
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    assert chromium, "no chromium on PATH; Debian: apt-get install chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium,
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
                *("--disable-background-networking", "--disable-component-update"),
                "--disable-sync",
            ],
        )
        yield found
        found.close()


@pytest.fixture
def page(browser, router):
    context = browser.new_context()
    made = context.new_page()
    made.set_default_timeout(15_000)
    wrong: list[str] = []
    # A refused request (401, 404) is the page's own business; everything else it says is not.
    made.on(
        "console",
        lambda m: (
            wrong.append(m.text)
            if m.type == "error" and "Failed to load resource" not in m.text
            else None
        ),
    )
    made.on("pageerror", lambda e: wrong.append(str(e)))
    yield made
    context.close()
    assert not wrong, wrong


def chosen(page) -> str:
    return page.locator("#model").input_value()


def opened(page, router, key=KEY):
    page.goto(f"{router}/#key={key}")
    expect(page.locator("#model")).to_be_enabled()
    return page


def test_it_asks_and_shows_the_answer(page, router):
    opened(page, router)
    assert chosen(page) == "zulu", "a simulated model neither leads nor is chosen"
    labels = page.locator("#model option").all_inner_texts()
    assert labels == ["zulu", "zz-nobody", "alpha (simulated)"]
    expect(page.locator("#about")).to_contain_text("A model with <b>words</b> about it.")
    assert page.url == f"{router}/", "the key does not stay in the address"
    page.locator("#settings summary").click()
    page.fill("#max-tokens", "8")
    page.keyboard.press("Escape")
    page.fill("#question", "Recite, please")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.mine .text")).to_have_text("Recite, please")
    expect(page.locator(".figures")).to_contain_text("8 out")
    expect(page.locator(".turn:not(.mine) .text")).to_contain_text("alpha beta gamma")
    expect(page.locator(".notice")).to_have_count(0)
    expect(page.locator(".empty")).to_have_count(0)


def test_the_answer_grows_and_can_be_stopped(page, router):
    opened(page, router)
    page.locator("#settings summary").click()
    page.fill("#max-tokens", "2000")
    page.keyboard.press("Escape")
    page.fill("#question", "Recite all of it")
    page.click("#send")
    text = page.locator(".turn:not(.mine) .text")
    expect(text).to_contain_text("alpha")
    first = len(text.inner_text())
    page.wait_for_function(
        "n => document.querySelector('.turn:not(.mine) .text').innerText.length > n", arg=first
    )
    expect(page.locator("#stop")).to_be_visible()
    page.click("#stop")
    expect(page.locator(".figures")).to_contain_text("stopped")
    expect(page.locator("#send")).to_be_visible()
    after = len(text.inner_text())
    time.sleep(0.5)
    assert len(text.inner_text()) == after


def test_the_conversation_goes_on_and_begins_anew(page, router):
    opened(page, router)
    page.locator("#settings summary").click()
    page.fill("#max-tokens", "3")
    page.keyboard.press("Escape")
    for number in (1, 2):
        page.fill("#question", f"Question {number}")
        page.keyboard.press("Enter")
        expect(page.locator(".figures")).to_have_count(number)
    page.click("#new")
    expect(page.locator(".turn")).to_have_count(0)


def test_a_missing_key_is_asked_for(page, router):
    page.goto(router)
    expect(page.locator("#about")).to_contain_text("API key")
    expect(page.locator("#key")).to_be_focused()
    page.fill("#key", KEY)
    page.keyboard.press("Tab")
    expect(page.locator("#model")).to_be_enabled()


def test_an_error_is_shown_in_words(page, router):
    opened(page, router)
    page.select_option("#model", "zz-nobody")
    page.fill("#question", "Anyone?")
    page.keyboard.press("Enter")
    notice = page.locator(".notice")
    expect(notice).to_contain_text("no_endpoint", timeout=30_000)
    expect(notice).to_contain_text("It may work in")
    assert page.locator("#question").input_value() == "Anyone?"


def test_nothing_is_taken_from_elsewhere(browser, router):
    context = browser.new_context()
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(f"{router}/#key={KEY}")
    expect(page.locator("#model")).to_be_enabled()
    assert asked
    assert all(url.startswith(router) for url in asked), asked
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    context.close()


@pytest.mark.parametrize(("width", "height"), [(380, 700), (1400, 900)])
def test_it_fits_the_window(browser, router, width, height):
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.goto(f"{router}/#key={KEY}")
    expect(page.locator("#model")).to_be_enabled()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#send").is_visible()
    context.close()
