#pragma once

/// The style sheet of the page of a run, behind that of every page.

namespace fq::html {

inline constexpr const char* run_style = R"css(
svg .curve { fill: none; stroke: var(--c, var(--link)); stroke-width: 1.6; stroke-linejoin: round; }
svg circle.hollow { fill: none; stroke: var(--c); stroke-width: 1.6; }
svg .narrow { display: none; }
@media (max-width: 640px) { svg .narrow { display: inline; } svg .wide { display: none; } }
svg.spark { display: inline-block; width: 120px; height: 24px; vertical-align: middle; }
.work { display: flex; height: 26px; border-radius: 8px; overflow: hidden; margin: 8px 0; background: var(--rail); }
.work span { background: var(--c); min-width: 1px; }
.f-6 { --c: #65a30d; } .f-7 { --c: #0891b2; } .f-8 { --c: #b91c1c; } .f-9 { --c: #a16207; }
.sheet { overflow-x: auto; margin: 8px 0 18px; }
.sheet thead { position: static; }
table.matrix { width: auto; margin: 8px 0 18px; }
table.matrix th, table.matrix td { padding: 3px 8px; text-align: center; min-width: 34px; border-bottom: 0; }
table.matrix th.text { text-align: right; font-weight: 500; color: var(--soft); }
table.matrix td.right { background: color-mix(in srgb, #0d9488 var(--v), var(--card)); }
table.matrix td.wrong { background: color-mix(in srgb, #e5484d var(--v), var(--card)); }
table.matrix td.strong { color: #fff; }
details { margin: 12px 0; } summary { cursor: pointer; color: var(--link); }
details table { width: auto; } details td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
)css";

}  // namespace fq::html
