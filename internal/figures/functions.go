package figures

import (
	"github.com/go-echarts/go-echarts/v2/opts"
	"github.com/go-echarts/go-echarts/v2/types"
)

// The JavaScript that options carry. go-echarts stores a function as a marked string and strips line ends and tabs; so that
// it survives as JSON and in a page, none contains a double quote, a backslash or a line comment. Numbers arrive in the
// dimensions named in each comment.
//
// Children carry their own z2: ECharts ignores z2 on the group, and by default would hide the lower half of each whisker behind
// its bar.
var functions = struct{ bar, whisker, text, span, tip, tick types.FuncStr }{
	// x0, y0, x1, y1: a filled rectangle between two corners. A corner on the far side of a log axis is clipped by the grid.
	bar: opts.FuncOpts(`function (params, api) {
		var a = api.coord([api.value(0), api.value(1)]), b = api.coord([api.value(2), api.value(3)]);
		return {type: 'rect', z2: 1, shape: {x: Math.min(a[0], b[0]), y: Math.min(a[1], b[1]),
			width: Math.abs(b[0] - a[0]), height: Math.abs(b[1] - a[1])}, style: {fill: api.visual('color')}};
	}`),
	// x0, y0, x1, y1, cap in pixels: a line with a cap at each end, across its own direction.
	whisker: opts.FuncOpts(`function (params, api) {
		var a = api.coord([api.value(0), api.value(1)]), b = api.coord([api.value(2), api.value(3)]), c = api.value(4);
		var up = Math.abs(b[1] - a[1]) >= Math.abs(b[0] - a[0]), dx = up ? c : 0, dy = up ? 0 : c;
		var line = function (p, q, r, s) {
			return {type: 'line', z2: 10, shape: {x1: p, y1: q, x2: r, y2: s}, style: {stroke: api.visual('color'), lineWidth: 1.5}};
		};
		return {type: 'group', children: [line(a[0], a[1], b[0], b[1]),
			line(a[0] - dx, a[1] - dy, a[0] + dx, a[1] + dy), line(b[0] - dx, b[1] - dy, b[0] + dx, b[1] + dy)]};
	}`),
	// x, y, text, dx, dy in pixels, align, size, weight: text beside a point. Turned text runs upwards from it.
	text: opts.FuncOpts(`function (params, api) {
		var p = api.coord([api.value(0), api.value(1)]), turned = api.ordinalRawValue(5) === 'turned';
		var x = p[0] + api.value(3), y = p[1] + api.value(4);
		return {type: 'text', z2: 20, silent: true, x: turned ? x : 0, y: turned ? y : 0, rotation: turned ? Math.PI / 2 : 0,
			style: {x: turned ? 0 : x, y: turned ? 0 : y, text: api.ordinalRawValue(2), fill: api.visual('color'),
			fontFamily: 'DejaVu Sans, Noto Sans CJK SC, sans-serif', fontSize: api.value(6), fontWeight: api.value(7) ? 'bold' : 'normal',
			align: turned ? 'left' : api.ordinalRawValue(5), verticalAlign: 'middle'}};
	}`),
	// x0, x1, lane, height in lanes: a rounded bar in a lane.
	span: opts.FuncOpts(`function (params, api) {
		var a = api.coord([api.value(0), api.value(2)]), b = api.coord([api.value(1), api.value(2)]);
		var h = api.size([0, 1])[1] * api.value(3);
		return {type: 'rect', z2: 1, shape: {x: a[0], y: a[1] - h / 2, width: Math.max(b[0] - a[0], 1), height: h, r: 2},
			style: {fill: api.visual('color')}};
	}`),
	// Tooltips are drawn as text, never as HTML, so a name can't become markup.
	tip: opts.FuncOpts(`function (p) {
		var v = [].concat(p.value).filter(function (x) { return typeof x === 'number'; });
		return [p.seriesName, p.name].filter(Boolean).join(', ') + ': ' +
			v.slice(0, 4).map(function (x) { return +x.toPrecision(5); }).join(', ');
	}`),
	// Axis ticks without binary noise: 0.30000000000000004 is 0.3; thousands as 1k would hide a factor, so digits stay.
	tick: opts.FuncOpts(`function (v) { return String(+v.toPrecision(10)); }`),
}
