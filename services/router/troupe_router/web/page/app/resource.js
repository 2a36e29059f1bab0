// One piece of server data in a component: loaded, kept, refreshed.
import { useSWR } from "../vendor/ui.js";
import { request } from "./api.js";

// path: null loads nothing. everyMs: how often it is looked at again while the tab is seen.
export function useResource(path, { everyMs = 0 } = {}) {
  const { data, error, isLoading, mutate } = useSWR(path, request, {
    refreshInterval: everyMs,
    revalidateOnFocus: everyMs > 0,
    keepPreviousData: true,
    dedupingInterval: 400,
    errorRetryCount: 5,
    shouldRetryOnError: (failure) => failure.status === 0 || failure.status >= 500,
  });
  return { data, error, isLoading, reload: () => mutate() };
}
