// Keeps work that many events ask for within bounds.

// Calls act at most once in everyMs: at once where it was quiet, and once more at the end for whatever came meanwhile.
export function paced(act, everyMs) {
  let timer = null;
  let isAsked = false;
  const run = () => {
    isAsked = false;
    timer = setTimeout(() => {
      timer = null;
      if (isAsked) run();
    }, everyMs);
    act();
  };
  const ask = () => {
    if (timer === null) run();
    else isAsked = true;
  };
  const stop = () => clearTimeout(timer);
  return { ask, stop };
}
