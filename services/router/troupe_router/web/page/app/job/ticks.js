// Draws a component again when its job's feed changes, at most four times a second.
import { useEffect, useState } from "../html.js";

export function useTicks(feed) {
  const [, tick] = useState(0);
  useEffect(() => {
    let timer = 0;
    const later = () => {
      timer ||= setTimeout(() => {
        timer = 0;
        tick((n) => n + 1);
      }, 250);
    };
    const stop = feed.subscribe(later);
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [feed]);
}
