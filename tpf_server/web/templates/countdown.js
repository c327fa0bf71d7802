(function () {
  var badges = document.querySelectorAll("time[data-end]");
  if (!badges.length) return;
  var skew = Number(badges[0].dataset.now) - Date.now();
  badges.forEach(function (badge) {
    badge.whole = Number(badge.dataset.end) - Number(badge.dataset.start || badge.dataset.now);
  });
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
  tick();
  setInterval(tick, 1000);
})();
