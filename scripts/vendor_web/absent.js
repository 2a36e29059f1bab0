// Stands for what the form library can use and this page does not: dates, Markdown, and a validator
// that compiles schemas into code.
const Nothing = () => null;
const plugin = Object.assign(() => null, { extend: () => null });
export const Markdown = ({ children }) => children;
export { Nothing as DateInput, Nothing as DateTimePicker, Nothing as TimeInput };
export default plugin;
