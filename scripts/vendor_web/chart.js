// What the charts import from vendor/chart.js.
export { default as uPlot } from "uplot";
