// One piece of server data in a component: loaded, kept, refreshed.
import { useSWR } from "../vendor/ui.js";
import { mayPass, request, withQuery } from "./api.js";
import { useState } from "./html.js";

const PAGE = 50;
const MOST_ROWS = 1000; // in one answer of the router

// path: null loads nothing. everyMs: how often it is looked at again while the tab is seen.
export function useResource(path, { everyMs = 0 } = {}) {
  const { data, error, isLoading, mutate } = useSWR(path, request, {
    refreshInterval: everyMs,
    revalidateOnFocus: everyMs > 0,
    keepPreviousData: true,
    dedupingInterval: 400,
    errorRetryCount: 5,
    shouldRetryOnError: mayPass,
  });
  return { data, error, isLoading, reload: () => mutate() };
}

// The first rows of a list, a page more after each showMore(), which is null where there may be no more. All of them are loaded
// anew, because what is new moves the others down; a longer list more rarely, so that it is no more work for the router.
export function useList(path, query, { everyMs = 0 } = {}) {
  const list = withQuery(path, query);
  const [asked, setAsked] = useState({ list, limit: PAGE });
  const limit = asked.list === list ? asked.limit : PAGE;
  const resource = useResource(withQuery(path, { ...query, limit }), { everyMs: (everyMs * limit) / PAGE });
  return { ...resource, showMore: limit < MOST_ROWS ? () => setAsked({ list, limit: limit + PAGE }) : null };
}
