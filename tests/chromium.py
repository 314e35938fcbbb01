"""A headless Chromium, driven over two pipes: the DevTools protocol without any package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LIMIT = 150.0


class Page:
    """A page of a browser. errors: what its scripts have thrown or the policy has forbidden."""

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of = to, of
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        attached = self.do("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        call: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            call["sessionId"] = self._session
        os.write(self._to, json.dumps(call).encode() + b"\0")
        while (reply := self._next()).get("id") != self._number:
            self._note(reply.get("method"), reply.get("params", {}))
        assert "error" not in reply, reply
        return dict(reply["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._of, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    def _note(self, method: str | None, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(event["exceptionDetails"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.errors.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])

    def value(self, script: str) -> Any:
        """Return what an expression is in the page."""
        result = self.do(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script: str) -> Any:
        """Return what an expression is, once it is true; of a page half loaded it may throw."""
        deadline = time.monotonic() + _LIMIT
        guarded = f"(() => {{ try {{ return {script} }} catch {{ return null }} }})()"
        while not (found := self.value(guarded)):
            assert time.monotonic() < deadline, f"never true: {script}: {self.errors}"
            time.sleep(0.05)
        return found

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, in pixels."""
        size = {"width": width, "height": height}
        self.do("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path, width: int, height: int, dark: bool = False) -> None:
        """Write what the page looks like as PNG."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width, height)
        path.write_bytes(base64.b64decode(self.do("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def browser(program: str, profile: Path) -> Iterator[Page]:
    """Start a browser with an empty profile, and end it; yields a page."""
    read_by_it, to = os.pipe()
    of, written_by_it = os.pipe()
    flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    command = f'exec "$0" {flags} --remote-debugging-pipe "$@" 3<&{read_by_it} 4>&{written_by_it}'
    process = subprocess.Popen(
        ["bash", "-c", command, program, f"--user-data-dir={profile}"],
        pass_fds=(read_by_it, written_by_it),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_by_it)
    os.close(written_by_it)
    try:
        yield Page(to, of)
    finally:
        process.kill()
        process.wait()
        os.close(to)
        os.close(of)
