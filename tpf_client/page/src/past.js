// Going back: the answer as of an instant, by a slider, or replayed.
const STEPS = 1000; // positions of the slider
const PERIOD = 1000; // milliseconds between two instants of a replay

/**
 * @param {(id: string) => HTMLElement} at finds the controls
 * @param {{now: () => number, ask: (instant: Date) => Promise<void>, present: () => void, shown: () => void}} does
 *   the server's clock; shows the answer of an instant; watches again; has these controls in sight
 */
export function travel(at, does) {
  let instant = null; // null: the present
  let timer = 0;
  let asking = false;
  let wanted = null;

  const whole = () => Number(at("span").value) * 1000;

  function tell() {
    const text = instant === null ? "now" : `${new Date(instant).toISOString().slice(0, 19).replace("T", " ")} UTC`;
    at("when").textContent = text;
    at("moment").setAttribute("aria-valuetext", text);
    at("moment").value = instant === null ? STEPS : STEPS - ((does.now() - instant) / whole()) * STEPS;
    at("present").hidden = instant === null;
    at("replay").textContent = timer ? "Stop" : "Replay";
  }

  /** One question at a time, and then the newest wish. */
  async function ask() {
    wanted = instant;
    if (asking) return;
    asking = true;
    while (wanted !== null) {
      const now = wanted;
      wanted = null;
      await does.ask(new Date(now));
    }
    asking = false;
  }

  function go(to) {
    if (to >= does.now()) return leave(true);
    instant = to;
    tell();
    ask();
  }

  /** Forget the past; `again`: and watch the present. */
  function leave(again) {
    clearInterval(timer);
    timer = 0;
    wanted = null;
    const was = instant !== null;
    instant = null;
    tell();
    if (again && was) does.present();
  }

  at("moment").addEventListener("input", ({ target }) => go(does.now() - (1 - Number(target.value) / STEPS) * whole()));
  at("span").addEventListener("change", () => (instant === null ? tell() : go(does.now() - whole())));
  at("present").addEventListener("click", () => leave(true));
  at("replay").addEventListener("click", () => {
    if (timer) {
      clearInterval(timer);
      timer = 0;
      tell();
      return;
    }
    timer = setInterval(() => {
      if (!asking) go(instant + Number(at("speed").value) * PERIOD);
    }, PERIOD);
    go(instant ?? does.now() - whole());
  });
  tell();
  /** Go to an instant, from as long ago as it takes. */
  function to(wanted) {
    const ago = (does.now() - wanted) / 1000;
    const spans = [...at("span").options].map((each) => each.value);
    at("span").value = spans.find((each) => Number(each) >= ago) ?? spans.at(-1);
    does.shown();
    go(wanted);
  }

  return {
    to,
    leave: () => leave(false),
    get back() { return instant !== null; },
    get instant() { return instant === null ? null : new Date(instant); },
  };
}
