// Draws figures with node instead of goja: node ssr.cjs ECHARTS DRAW OPTION WIDTH HEIGHT. DRAW is the program that the
// renderer runs; the picture goes to standard output as ECharts wrote it.
const fs = require('fs'), vm = require('vm');
const [script, draw, option, width, height] = process.argv.slice(2);
global.echarts = require(script);
const svg = vm.runInThisContext(fs.readFileSync(draw, 'utf8'))(fs.readFileSync(option, 'utf8'), +width, +height);
process.stdout.write(svg, () => process.exit(0)); // ECharts' clock would keep node alive for ever
