// Markup without a build step: htm turns tagged templates into React elements. Text that is put
// into a template is always a text node or an attribute, never markup.
import { React, htm } from "../vendor/ui.js";

export const html = htm.bind(React.createElement);
export const { Component, useCallback, useEffect, useMemo, useRef, useState, useContext, createContext } = React;
