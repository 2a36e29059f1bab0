// Starts the page: theme, session, navigation, routes.
import {
  ActionIcon, Button, IconLogout, IconMoon, IconPlus, IconSun, Link, MantineProvider, Route, Routes, Tooltip, createRoot, setNonce, useComputedColorScheme, useHotkeys, useLocation, useMantineColorScheme,
} from "../vendor/ui.js";
import { Boundary } from "./boundary.js";
import { html, useEffect } from "./html.js";
import { ClusterPage } from "./pages/cluster.js";
import { ComparePage } from "./pages/compare.js";
import { EpisodePage } from "./pages/episode.js";
import { JobPage } from "./pages/job.js";
import { JobsPage } from "./pages/jobs.js";
import { NewJobPage } from "./pages/new_job.js";
import { Empty } from "./parts.js";
import { SessionGate, may, useSession } from "./session.js";
import { theme } from "./theme.js";

const nonce = document.querySelector("script[nonce]").nonce;
const mark = new URL("../mark.svg", import.meta.url).pathname;
setNonce(nonce);

function Bar() {
  const [, go] = useLocation();
  const { session, signOut } = useSession();
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const turn = () => setColorScheme(scheme === "dark" ? "light" : "dark");
  useHotkeys([["g>j", () => go("/")], ["n", () => go("/new")], ["c", () => go("/cluster")], ["t", turn]]);
  return html`<header class="bar"><div class="bar-inner">
    <a href="#main" class="skip">Skip to content</a>
    <${Link} href="/" className="brand"><img src=${mark} alt="" width="22" height="22" />Troupe<//>
    <nav aria-label="Main"><${NavLink} href="/">Jobs<//><${NavLink} href="/cluster">Cluster<//></nav>
    <div class="bar-end">
      ${may(session, "submit") && html`<${Button} component=${Link} href="/new" size="xs" aria-label="New job" className="new-button"><${IconPlus} size=${14} /><span>New job</span><//>`}
      <${Tooltip} label=${scheme === "dark" ? "Light" : "Dark"}><${ActionIcon} variant="subtle" color="gray" onClick=${turn} aria-label="Switch between light and dark">
        ${scheme === "dark" ? html`<${IconSun} size=${18} />` : html`<${IconMoon} size=${18} />`}<//><//>
      ${session.authentication === "keys" && html`<${Tooltip} label=${`Signed in as ${session.name}`}><${ActionIcon} variant="subtle" color="gray" onClick=${signOut} aria-label="Sign out"><${IconLogout} size=${18} /><//><//>`}
    </div>
  </div></header>`;
}

function NavLink({ href, children }) {
  const [path] = useLocation();
  const isHere = href === "/" ? path === "/" || path.startsWith("/jobs") : path.startsWith(href);
  return html`<${Link} href=${href} className=${isHere ? "nav here" : "nav"} aria-current=${isHere ? "page" : undefined}>${children}<//>`;
}

function NotFound() {
  return html`<${Empty} title="There is no such page" action=${html`<${Button} component=${Link} href="/" variant="light">To the jobs<//>`}>The address may be mistyped.<//>`;
}

function Page() {
  const [path] = useLocation();
  useEffect(() => {
    window.scrollTo(0, 0);
  }, [path]);
  return html`<${SessionGate}><${Bar} /><main class="wrap" id="main" tabIndex="-1"><${Boundary} place=${path}><${Routes}>
    <${Route} path="/" component=${JobsPage} />
    <${Route} path="/jobs" component=${JobsPage} />
    <${Route} path="/new" component=${NewJobPage} />
    <${Route} path="/cluster" component=${ClusterPage} />
    <${Route} path="/jobs/:id/episodes/:episode">${(p) => html`<${EpisodePage} key=${p.episode} id=${p.id} episode=${p.episode} />`}<//>
    <${Route} path="/jobs/:id/compare/:one/:other">${(p) => html`<${ComparePage} id=${p.id} one=${p.one} other=${p.other} />`}<//>
    <${Route} path="/jobs/:id/:tab?">${(p) => html`<${JobPage} key=${p.id} id=${p.id} tab=${p.tab || "overview"} />`}<//>
    <${Route}><${NotFound} /><//>
  <//><//></main><//>`;
}

createRoot(document.getElementById("page")).render(
  html`<${MantineProvider} theme=${theme} defaultColorScheme="auto" getStyleNonce=${() => nonce}><${Page} /><//>`,
);
