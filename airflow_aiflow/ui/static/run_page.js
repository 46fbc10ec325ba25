import { h } from "./host.js";
import { Loading } from "./states.js";

/** @param {import("./host.js").PageProps | Record<string, unknown>} props */
export function RunPage(props) {
  return h(Loading, {});
}
