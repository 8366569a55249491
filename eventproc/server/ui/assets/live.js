// Answers that stay current: asked again after a change, and now and then while the page is looked at.

import { useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { call } from "./api.js";

// Returns what a path answers, the problem if it fails, and a function that asks again. every: in ms.
export function useAnswer(path, turn, refused, every = 5000) {
  const [state, setState] = useState({ path: null, found: null, problem: null });
  const latest = useRef(null); // the answers to earlier ones are late, also to those of the same path
  const again = useMemo(() => {
    let busy = null;
    return async function ask() {
      if (busy) { busy = "again"; return; }
      busy = "asking";
      let answer;
      try {
        answer = { found: await call(path), problem: null };
      } catch (why) {
        if (why.status === 401) refused();
        answer = { problem: why };
      }
      if (latest.current !== ask) return;
      setState((before) => ({ path, found: before.path === path ? before.found : null, ...answer }));
      const missed = busy === "again";
      busy = null;
      if (missed) ask();
    };
  }, [path]);
  latest.current = again;
  useEffect(() => { again(); }, [path, turn]);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) again(); }, every);
    return () => clearInterval(timer);
  }, [path, every]);
  const isCurrent = state.path === path;
  return { found: isCurrent ? state.found : null, problem: isCurrent ? state.problem : null, isAnswered: isCurrent, again };
}
