// Answers that stay current: asked again after a change, and now and then while the page is looked at.

import { useCallback, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";

// Returns what a path answers, the problem if it fails, and a function that asks again. every: in ms.
export function useAnswer(path, turn, refused, every = 5000) {
  const [state, setState] = useState({ path: null, found: null, problem: null });
  const busy = useRef(null);
  const again = useCallback(async () => {
    if (busy.current) { busy.current = "again"; return; }
    busy.current = "asking";
    try {
      const found = await call(path);
      setState({ path, found, problem: null });
    } catch (why) {
      if (why.status === 401) refused();
      setState((before) => ({ path, found: before.path === path ? before.found : null, problem: why }));
    }
    const missed = busy.current === "again";
    busy.current = null;
    if (missed) again();
  }, [path]);
  useEffect(() => { again(); }, [path, turn]);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) again(); }, every);
    return () => clearInterval(timer);
  }, [path, every]);
  const isCurrent = state.path === path;
  return { found: isCurrent ? state.found : null, problem: isCurrent ? state.problem : null, isAnswered: isCurrent, again };
}
