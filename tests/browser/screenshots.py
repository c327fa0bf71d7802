"""Makes the pictures of the README, wide and narrow, from the running demo.

./run exec python -m tests.browser.screenshots

"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.browser.chromium import Browser
from tests.support.eventually import eventually
from tests.support.peers import PROJECT

_FOLDER = PROJECT / "docs/images"
_SECONDS = 240
_STILL = """(() => {
  const changed = [...document.querySelectorAll('td.changed')];
  const { top, bottom } = changed[changed.length >> 1]?.getBoundingClientRect() ?? {};
  if (!(top > 0 && bottom < innerHeight)) {
    changed[changed.length >> 1]?.scrollIntoView({ block: 'center' });
    window.scrollTo(0, 0);
    return false;
  }
  if (document.getElementById('state').dataset.kind !== 'live' || changed.length < 4) return false;
  const [real, copy] = [document.body, document.body.cloneNode(true)];
  const scrolled = document.getElementById('scroll').scrollTop;
  document.getElementById = (id) => real.querySelector(`#${id}`);
  real.replaceWith(copy);
  copy.querySelector('#scroll').scrollTop = scrolled;
  window.goOn = () => { copy.replaceWith(real); delete document.getElementById; };
  return true;
})()"""
"""Shows a copy of the page that stays as it is, once it is up to date and changes are in sight."""


def main() -> None:
    """Start the demo, wait until something changes on its page, and write the pictures."""
    _FOLDER.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tpf_client.commands", "tpf-demo", "--seconds", str(_SECONDS)]
    with (
        tempfile.TemporaryDirectory() as profile,
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as demo,
    ):
        assert demo.stderr is not None
        url = next(line.split()[-1] for line in demo.stderr if "in a browser: " in line)
        with Browser(Path(profile)) as browser:
            browser.open(url)
            # In one visit: what is replayed ends before Python would have started again.
            for name, width, height in (("page-wide", 1280, 800), ("page-narrow", 390, 844)):
                browser.resize(width, height, phone=width < 400)
                eventually(lambda: browser.evaluate(_STILL))
                browser.screenshot(_FOLDER / f"{name}.png")
                browser.evaluate("goOn()")
        demo.terminate()
        demo.communicate()


if __name__ == "__main__":
    main()
