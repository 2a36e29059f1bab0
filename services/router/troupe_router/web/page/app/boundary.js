// Where a part of the page cannot be drawn: says so there, and leaves the rest of the page as it is.
import { Component, html } from "./html.js";
import { Fault } from "./parts.js";

// place: what is shown; another place is tried anew. title: what to say instead.
export class Boundary extends Component {
  state = { error: null };

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidUpdate(before) {
    if (this.state.error && before.place !== this.props.place) this.setState({ error: null });
  }

  render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return html`<${Fault} error=${error} retry=${() => this.setState({ error: null })} title=${this.props.title || "This could not be drawn"} />`;
  }
}
