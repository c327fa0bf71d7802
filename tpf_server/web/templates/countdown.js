(function () {
  var skew = 0, badges = [], waiting = 0, pause = 2000;
  function begin() {
    badges = document.querySelectorAll("time[data-end]");
    var known = document.querySelector("[data-now]");
    if (known) skew = Number(known.dataset.now) - Date.now();
    badges.forEach(function (badge) {
      badge.whole = Number(badge.dataset.end) - Number(badge.dataset.start || badge.dataset.now);
    });
    tick();
    var matches = document.querySelector("[data-renewed]");
    clearTimeout(waiting);
    if (matches) renewIn(Number(matches.dataset.renewed) - Date.now() - skew + 1000 * Math.random());
  }
  function tick() {
    var now = Date.now() + skew;
    badges.forEach(function (badge) {
      var left = Math.ceil((Number(badge.dataset.end) - now) / 1000);
      badge.lastElementChild.textContent = left > 0 ? ", in " + words(left) : ", over";
      badge.classList.toggle("over", left <= 0);
      var share = (Number(badge.dataset.end) - now) / Math.max(badge.whole, 1);
      badge.style.setProperty("--left", Math.min(Math.max(share, 0), 1).toFixed(4));
    });
  }
  function words(seconds) {
    if (seconds < 120) return seconds + " s";
    if (seconds < 7200) return Math.round(seconds / 60) + " min";
    if (seconds < 172800) return Math.round(seconds / 3600) + " h";
    return Math.round(seconds / 86400) + " days";
  }
  // A page that shows live facts is read again when the first of them ends. Browsers take longer
  // pauses than 24 days for none.
  function renewIn(milliseconds) {
    waiting = setTimeout(renew, Math.min(Math.max(milliseconds, 1000), 2e9));
  }
  function renew() {
    if (document.hidden) {
      document.addEventListener("visibilitychange", renew, { once: true });
      return;
    }
    fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-cache" })
      .then(function (response) {
        if (!response.ok) throw response.status;
        return response.text();
      })
      .then(function (text) {
        var page = new DOMParser().parseFromString(text, "text/html");
        ["matches", "content"].forEach(function (name) {
          var old = document.getElementById(name), now = page.getElementById(name);
          if (old && now) replace(old, now);
        });
        pause = 2000;
        begin();
      })
      .catch(function () {
        var status = document.querySelector("[data-renewed] [role=status]");
        if (status) status.textContent = "These facts have ended; the server does not answer. Trying again.";
        pause = Math.min(2 * pause, 60000);
        renewIn(pause);
      });
  }
  // What is open stays open, and what has the focus keeps it.
  function replace(old, now) {
    var open = old.querySelectorAll("details"), links = "a, summary";
    now.querySelectorAll("details").forEach(function (each, number) {
      if (open[number]) each.open = open[number].open;
    });
    var place = Array.prototype.indexOf.call(old.querySelectorAll(links), document.activeElement);
    old.replaceWith(now);
    var same = place < 0 ? null : now.querySelectorAll(links)[place];
    if (same) same.focus({ preventScroll: true });
  }
  begin();
  setInterval(tick, 1000);
})();
