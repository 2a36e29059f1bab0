// Who the visitor is. The key is sent once and lives in a cookie that scripts cannot read.
import { Alert, Button, IconKey, PasswordInput, Text, Title, mutate } from "../vendor/ui.js";
import { request } from "./api.js";
import { createContext, html, useCallback, useContext, useEffect, useState } from "./html.js";
import { Fault, Waiting } from "./parts.js";

const OPEN = { authentication: "off", name: null, scopes: ["read", "submit", "admin"] };
const RETRY_MS = 3_000;
const SessionContext = createContext({ session: OPEN, signOut: () => {} });

export const useSession = () => useContext(SessionContext);
export const may = (session, scope) => session.scopes.includes(scope) || session.scopes.includes("admin");

// Shows the page to who may read, and asks everyone else for a key.
export function SessionGate({ children }) {
  const [session, setSession] = useState(null);
  const [error, setError] = useState(null);
  const [signOutError, setSignOutError] = useState(null);
  const load = useCallback(async () => {
    try {
      setSession(await request("/v1/session"));
      setError(null);
    } catch (failure) {
      setError(failure);
    }
  }, []);
  useEffect(() => {
    load();
    window.addEventListener("troupe:unauthenticated", load);
    return () => window.removeEventListener("troupe:unauthenticated", load);
  }, [load]);
  useEffect(() => {
    if (!error) return undefined;
    const timer = setTimeout(load, RETRY_MS);
    return () => clearTimeout(timer);
  }, [error, load]);
  useEffect(() => {
    // Whoever signs in next sees nothing of what this key could read.
    if (session && !session.scopes.length) mutate(() => true, undefined, { revalidate: false });
  }, [session]);
  const signOut = async () => {
    try {
      await request("/v1/session", { method: "DELETE" });
      setSignOutError(null);
    } catch (failure) {
      setSignOutError(failure);
      return;
    }
    await load();
  };
  if (error) return html`<main class="wrap"><${Fault} error=${error} retry=${load} title="The router does not answer" /></main>`;
  if (session === null) return html`<main class="wrap"><${Waiting} /></main>`;
  if (!session.scopes.length) return html`<${KeyEntry} onDone=${setSession} />`;
  return html`<${SessionContext.Provider} value=${{ session, signOut }}>${signOutError && html`<div class="wrap"><${Fault} error=${signOutError} retry=${signOut} title="You are still signed in" /></div>`}${children}<//>`;
}

function KeyEntry({ onDone }) {
  const [key, setKey] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      onDone(await request("/v1/session", { method: "POST", body: { key } }));
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<main class="wrap key-entry"><form onSubmit=${submit} aria-label="API key">
    <${IconKey} size=${28} className="faint" />
    <${Title} order=${1}>Enter your API key<//>
    <${Text} c="dimmed" size="sm">This server asks for one. It is kept in a cookie of this browser that scripts cannot read.<//>
    <${PasswordInput} label="API key" value=${key} onChange=${(event) => setKey(event.currentTarget.value)} autoFocus required autoComplete="current-password" />
    ${error && html`<${Alert} color="red" role="alert">${error.status === 401 ? "This key is not known here. Check it, or ask who runs the server for another." : error.message}<//>`}
    <${Button} type="submit" loading=${isBusy}>Continue<//>
  </form></main>`;
}
