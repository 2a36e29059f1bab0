"""The look of the page: colours of the web UI, light and dark, and one column."""

CSS = """
:root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--line:#e4e7ec;--ink:#1a1f2b;
--soft:#5b6472;--good:#087f5b;--bad:#c92a2a;--h0:#4263eb;--h1:#d9480f;--h2:#0c8599;--h3:#ae3ec9;
--h4:#5c940d;--h5:#c2255c;--h6:#846358;--h7:#495057}
@media (prefers-color-scheme:dark){:root{--ground:#0f131a;--card:#171c26;--line:#2a3140;
--ink:#e6e9ef;--soft:#a9b1bf;--good:#51cfa0;--bad:#ff8787;--h0:#91a7ff;--h1:#ffa94d;--h2:#66d9e8;
--h3:#e599f7;--h4:#a9e34b;--h5:#f783ac;--h6:#c9a99b;--h7:#adb5bd}}
*{box-sizing:border-box}
body{margin:0;overflow-wrap:anywhere;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
main{max-width:860px;margin:0 auto;padding:16px}
section,header{background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:12px 20px;margin:0 0 16px}
h1{font-size:1.5rem;margin:.3rem 0}h2{font-size:1.15rem;margin:.3rem 0}
p{margin:.5rem 0}.soft,caption,figcaption,.cut{color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}
.big{font-size:1.3rem}
table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:3px 14px 3px 0;border-bottom:1px solid var(--line)}
caption{text-align:left;padding:4px 0}
.wide{overflow-x:auto}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;font:13px/1.4 ui-monospace,monospace;
unicode-bidi:isolate}
figure{margin:12px 0}svg{width:100%;height:auto;display:block}
svg text{fill:var(--soft);font-size:11px}.grid{stroke:var(--line)}
svg polyline{fill:none;stroke-width:1.6}svg line{stroke-width:1.4}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;margin:4px 0;padding:0;
font-size:.85rem}
.legend li::before{content:"";display:inline-block;width:10px;height:10px;margin-right:6px;
background:currentColor}
details{border-top:1px solid var(--line);padding:6px 0}
details details{margin-left:14px}summary{cursor:pointer;overflow-wrap:anywhere}
.chosen{border-left:3px solid var(--good);padding-left:8px}
.other{border-left:3px solid var(--line);padding-left:8px}
.candidate{margin:8px 0}
""" + "".join(
    f"svg polyline.hue-{i},svg line.hue-{i}{{stroke:var(--h{i})}}svg circle.hue-{i},"
    f"svg rect.hue-{i}{{fill:var(--h{i})}}.legend .hue-{i}::before{{color:var(--h{i})}}"
    for i in range(8)
)
"""One style element; its digest stands in the page's content security policy."""
