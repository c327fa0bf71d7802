var h="@python@",b="@packages@",A=+"@whole@",r=+"@sent@",m=5e3,M=25,k="compiled",c=e=>new URL(e,self.location.href).href,l=new Set,p=self.fetch.bind(self),f=null,g={state:"loading",loaded:0,total:r},u=0;function o(e){g=e;for(let t of l)t.postMessage({engine:e})}async function E(e){let t=0;for(let n=e.body.getReader(),s;!(s=await n.read()).done;)u+=s.value.byteLength,t+=s.value.byteLength,t>1e5&&g.state==="loading"&&(t=0,o({state:"loading",loaded:Math.round(r*Math.min(u/A,1)),total:r}))}async function y(e,t){let n=await p(e,t);return n.ok&&E(n.clone()).catch(()=>{}),n}var S="python_stdlib.zip",_=()=>c(`${h}/${b}`);async function I(){try{return await(await caches.open(k)).match(_())??null}catch{return null}}async function L(e){try{let t=await caches.open(k),n=e.runPython(O),s=n.next();for(;!s.value;)await new Promise(i=>setTimeout(i,M)),s=n.next();let a=s.value.toJs();s.value.destroy(),n.destroy();for(let i of await t.keys())await t.delete(i);await t.put(_(),new Response(a))}catch{}}var O=`
def compiling():
    import importlib.util, io, marshal, sys, zipfile
    # A file of the first kind that is not compared with its source (PEP 552).
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    library = next(each for each in sys.path if each.endswith("/python314.zip"))
    with open(library, "rb") as file:
        made = io.BytesIO(file.read())
    with zipfile.ZipFile(made, "a") as archive:
        for name, module in sorted(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            loader = getattr(spec, "loader", None)
            if not hasattr(loader, "archive"):
                continue
            path = spec.name.replace(".", "/") + ("/__init__" if loader.is_package(spec.name) else "")
            archive.writestr(path + ".pyc", head + marshal.dumps(loader.get_code(spec.name)))
            yield None
    yield made.getvalue()
compiling()
`,z=`
import sys
if "/packages.zip" not in sys.path:
    sys.path.append("/packages.zip")
from tpf_client import tab
tab
`;async function P(){try{o({state:"loading",loaded:0,total:r}),u=0;let e=y(c(b)).then(i=>i.arrayBuffer()),[{loadPyodide:t},n]=await Promise.all([import(c(`${h}/pyodide.mjs`)),I()]);self.fetch=(i,d)=>n&&String(i).endsWith(`/${S}`)?Promise.resolve(n):y(i,d);let s=await t({indexURL:c(`${h}/`),checkAPIVersion:!1}),a=new Uint8Array(await e);self.fetch=p,o({state:"starting"}),s.FS.writeFile("/packages.zip",a),f=s.runPython(z),o({state:"ready"});for(let i of l)i.waiting.splice(0).forEach(d=>v(i,d));n||setTimeout(()=>L(s),m)}catch(e){self.fetch=p,o({state:"broken",error:String(e.message??e).trim().split(`
`).at(-1)}),setTimeout(P,m)}}function v(e,t){let{id:n}=t,s=`${e.number}/${n}`;e.running.set(n,s);try{f.start(JSON.stringify({...t,id:s}),a=>{e.running.has(n)&&e.postMessage({id:n,text:a})})}catch(a){e.postMessage({id:n,text:JSON.stringify({event:"failed",data:{error:String(a.message)}})})}}function N(e,t){e.waiting=e.waiting.filter(s=>s.id!==t);let n=e.running.get(t);e.running.delete(t),n!==void 0&&f.stop(n)}function R(e){for(let t of[...e.running.keys()])N(e,t);l.delete(e)}var $=0;function w(e){Object.assign(e,{number:++$,waiting:[],running:new Map}),l.add(e),e.onmessage=({data:t})=>{t.start?f?v(e,t.start):e.waiting.push(t.start):t.stop!==void 0?N(e,t.stop):t.lock&&navigator.locks.request(t.lock,()=>R(e))},e.postMessage({engine:g})}"onconnect"in self?self.onconnect=({ports:[e]})=>w(e):w(self);P();
