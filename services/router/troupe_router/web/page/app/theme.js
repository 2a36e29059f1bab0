// Colours and type of the page, for components and for canvases.
import { createTheme } from "../vendor/ui.js";

const dark = ["#dfe3ea", "#b4bac6", "#8d95a5", "#646d7e", "#424a59", "#303744", "#212733", "#191e28", "#131720", "#0d1017"];

export const theme = createTheme({
  primaryColor: "indigo",
  primaryShade: { light: 7, dark: 8 },
  fontFamily: '"Inter Variable", system-ui, sans-serif',
  fontFamilyMonospace: '"JetBrains Mono Variable", ui-monospace, monospace',
  headings: { fontFamily: '"Inter Variable", system-ui, sans-serif', fontWeight: "620" },
  defaultRadius: "md",
  cursorType: "pointer",
  components: Object.fromEntries(
    ["TextInput", "NumberInput", "Select", "NativeSelect", "Textarea", "Autocomplete"].map((name) => [name, { defaultProps: { inputWrapperOrder: ["label", "input", "error", "description"] } }]),
  ),
  colors: { dark },
});

// Told apart by people with any colour vision, on both grounds; in the order in which they are given out.
const LIGHT = ["#4263eb", "#e8590c", "#0c8599", "#ae3ec9", "#5c940d", "#c2255c", "#846358", "#495057"];
const DARK = ["#748ffc", "#ff922b", "#3bc9db", "#da77f2", "#a9e34b", "#f783ac", "#c4a484", "#adb5bd"];

export const seriesColor = (index, isDark) => (isDark ? DARK : LIGHT)[index % LIGHT.length];

// CSS class of an agent's colour: the same agent has one colour on every page of its job.
export const agentClass = (agent, agents) => `hue-${Math.max(0, agents.indexOf(agent)) % LIGHT.length}`;
