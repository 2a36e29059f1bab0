// What the page imports from vendor/ui.js: React, components, icons, data fetching, routing.
export * as React from "react";
export { createRoot } from "react-dom/client";
export { setNonce } from "get-nonce";
export { default as htm } from "htm";
export { default as useSWR, mutate } from "swr";
export { Link, Route, Switch as Routes, useLocation, useSearch } from "wouter";
export {
  ActionIcon, Alert, Badge, Button, Collapse, CopyButton, Group, Loader, MantineProvider, Modal,
  NativeSelect, NumberInput, Paper, PasswordInput, Progress, SegmentedControl, Switch, Table, Tabs,
  Text, TextInput, Textarea, Title, Tooltip, UnstyledButton, createTheme, useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
export { useDebouncedValue, useDocumentTitle, useHotkeys } from "@mantine/hooks";
export {
  IconAlertTriangle, IconChevronDown, IconChevronRight, IconCircleCheck, IconCircleX, IconCopy,
  IconDownload, IconHourglass, IconKey, IconLogout, IconMoon, IconPlayerPause, IconPlayerPlay,
  IconPlayerStop, IconPlus, IconRocket, IconStar, IconSun, IconTrash,
} from "@tabler/icons-react";
