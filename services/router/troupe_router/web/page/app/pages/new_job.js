// Makes a job: a form of the spec's schema, checked by the router as one types.
import { NativeSelect, SegmentedControl, Textarea, mutate, useDebouncedValue, useDocumentTitle, useLocation, useSearch } from "../../vendor/ui.js";
import { ask, jobPath, request } from "../api.js";
import { Boundary } from "../boundary.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { PlanPanel } from "../form/plan_panel.js";
import { Fault, Loaded, PageHead, Waiting } from "../parts.js";
import { useResource } from "../resource.js";
import { may, useSession } from "../session.js";
import { inexact } from "../whole_numbers.js";

const CHECK_AFTER_MS = 350;
const WAYS = [{ value: "form", label: "Form" }, { value: "json", label: "JSON" }];

export function NewJobPage() {
  useDocumentTitle("New job · Troupe");
  const schema = useResource("/v1/schemas/job-spec");
  const tasks = useResource("/v1/tasks");
  const algorithms = useResource("/v1/algorithms");
  const from = new URLSearchParams(useSearch()).get("from");
  const names = (tasks.data?.tasks || []).filter((task) => !task.error).map((task) => task.name);
  return html`<${Loaded} resource=${schema} what="Loading the form">${(document) => html`<${Loaded} resource=${tasks} what="Loading the tasks">${(data) => html`
    <${Editor} key=${from || ""} schema=${document} tasks=${data.tasks} names=${names} algorithms=${algorithms.data?.algorithms || []} from=${from} />`}<//>`}<//>`;
}

function Editor({ schema, tasks, names, algorithms, from }) {
  const start = from ? `job:${from}` : names.includes("plan_path") ? "plan_path" : names[0];
  const [source, setSource] = useState(start);
  const [spec, setSpec] = useState(null);
  const [error, setError] = useState(null);
  const [fault, setFault] = useState(null);
  const [way, setWay] = useState("form");
  useEffect(() => {
    let isGone = false;
    setSpec(null); // the form and the text begin anew with what comes
    setError(null);
    const path = source.startsWith("job:") ? jobPath(source.slice(4), "/spec") : `/v1/tasks/${encodeURIComponent(source)}/spec`;
    request(path).then((loaded) => isGone || setSpec(loaded), (failure) => isGone || setError(failure));
    return () => {
      isGone = true;
    };
  }, [source]);
  const choices = [...(from ? [{ value: `job:${from}`, label: `Job ${from}` }] : []), ...names.map((name) => ({ value: name, label: name.replaceAll("_", " ") }))];
  const check = useCheck(spec);
  return html`<${PageHead} title="New job" actions=${html`<${NativeSelect} aria-label="Start from" data=${choices} value=${source} onChange=${(event) => setSource(event.currentTarget.value)} />
      <${SegmentedControl} size="xs" data=${WAYS} value=${way} onChange=${setWay} aria-label="Edit as" />`} />
    ${error && html`<${Fault} error=${error} />`}
    ${spec === null ? !error && html`<${Waiting} what="Loading the spec" />` : html`<div class="new-job"><div class="new-job-form">
        ${way === "form" ? html`<${Boundary} title="The form cannot show this spec; edit it as JSON"><${LazyForm} schema=${schema} tasks=${tasks} algorithms=${algorithms} spec=${spec} errors=${check.error?.errors || []} onChange=${setSpec} /><//>` : html`<${JsonEditor} spec=${spec} fault=${fault} onChange=${setSpec} onFault=${setFault} />`}
      </div><${Submit} spec=${spec} check=${fault ? { ...check, error: { message: fault } } : check} /></div>`}`;
}

// The form library is large, so it is loaded with the first form.
function LazyForm(props) {
  const [SpecForm, setForm] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    import("../form/spec_form.js").then((module) => setForm(() => module.SpecForm), () => setError(new Error("The form could not be loaded; reload the page, or use JSON.")));
  }, []);
  if (error) return html`<${Fault} error=${error} />`;
  return SpecForm ? html`<${SpecForm} ...${props} />` : html`<${Waiting} what="Loading the form" />`;
}

// While its text has a fault, the spec is what it last was: not what one sees.
function JsonEditor({ spec, fault, onChange, onFault }) {
  const [text, setText] = useState(() => JSON.stringify(spec, null, 2));
  useEffect(() => () => onFault(null), []);
  const edit = (value) => {
    setText(value);
    try {
      const parsed = JSON.parse(value);
      if (parsed === null) throw new Error("the spec must be an object");
      onChange(parsed);
      onFault(null);
    } catch (error) {
      onFault(error.message);
    }
  };
  return html`<${Textarea} aria-label="Job spec as JSON" className="json" value=${text} onChange=${(event) => edit(event.currentTarget.value)} error=${fault} autosize minRows=${24} maxRows=${48} spellCheck=${false} />`;
}

// Asks the router for a plan a moment after the last change; an older answer never wins. A spec with
// numbers that are not what was written has faults, whatever the router says.
function useCheck(spec) {
  const text = useMemo(() => (spec === null ? null : JSON.stringify(spec)), [spec]);
  const [settled] = useDebouncedValue(text, CHECK_AFTER_MS);
  const [state, setState] = useState({ plan: null, error: null, of: null });
  const faults = useMemo(() => inexact(spec), [spec]);
  useEffect(() => {
    if (settled === null) return undefined;
    return ask("/v1/jobs?dry_run=true", { method: "POST", body: settled }, ({ data = null, error = null }) => setState({ plan: data, error, of: settled }));
  }, [settled]);
  if (faults.length) return { plan: null, error: { errors: faults }, isBusy: false, text };
  return { ...state, isBusy: text !== state.of, text };
}

function Submit({ spec, check }) {
  const [, go] = useLocation();
  const { session } = useSession();
  const [isSubmitting, setSubmitting] = useState(false);
  const [error, setError] = useState(null);
  // One key for one content: a click that is repeated, or sent again, makes one job.
  const key = useMemo(() => crypto.getRandomValues(new Uint32Array(4)).join("-"), [check.text]);
  const submit = async () => {
    setSubmitting(true);
    setError(null);
    try {
      const job = await request("/v1/jobs", { method: "POST", body: spec, headers: { "Idempotency-Key": key } });
      await mutate((path) => typeof path === "string" && path.startsWith("/v1/jobs?"));
      go(`/jobs/${encodeURIComponent(job.job_id)}`);
    } catch (failure) {
      setError(failure);
      setSubmitting(false);
    }
  };
  return html`<${PlanPanel} plan=${check.plan} error=${check.error} isBusy=${check.isBusy} isSubmitting=${isSubmitting} submitError=${error} onSubmit=${submit} maySubmit=${may(session, "submit")} />`;
}
